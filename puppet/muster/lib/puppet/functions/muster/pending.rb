# frozen_string_literal: true

require File.expand_path('../../../puppet_x/muster/pending', File.dirname(__FILE__))

# Ends this run as pending with a free-text reason. Nothing is applied. The node runs again when a key that it looked up
# before this call changes.
#
#     muster::pending('the schema has not been loaded')
Puppet::Functions.create_function(:'muster::pending') do
  dispatch :pending do
    param 'String[1]', :reason
  end

  def pending(reason)
    PuppetX::Muster::Pending.stop({ kind: 'other', reason: reason }, reason)
  end
end
