# frozen_string_literal: true

require 'puppet/transaction/persistence'

module PuppetX
  module Muster
    # Lets `puppet apply` keep the values that a run has found or set, as `puppet agent` does. With them Puppet tells a
    # corrective change, which repairs drift, from an intended one.
    module CorrectiveChanges
      def self.enable
        persistence = Puppet::Transaction::Persistence
        persistence.prepend(self) unless persistence.include?(self)
      end

      def enabled?(catalog)
        catalog.host_config?
      end
    end
  end
end
