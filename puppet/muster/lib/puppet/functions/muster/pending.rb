# frozen_string_literal: true

require File.expand_path('../../../puppet_x/muster/pending', File.dirname(__FILE__))

# Ends this run as pending, for a reason that only the content knows. Nothing is applied. The node runs again when
# something that it looked up before this call changes.
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
